"""How people and programs call the product: the command line."""
