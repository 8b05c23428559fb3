"""Felix messages ⇄ bytes, one module for each dialect or direction."""
