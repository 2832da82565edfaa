"""The interfaces on the wire, and what is compiled of them."""
