"""Commands and helpers around queries: they use the other rooms, and no other room uses them."""
