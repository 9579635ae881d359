"""Faults made from outside in real engines, and which verdict is right for each."""
