"""Leaves: tools around the trunk. The trunk imports none of them."""
