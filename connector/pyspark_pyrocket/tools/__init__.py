"""Commands and helpers for queries. No other package of the connector imports them."""
