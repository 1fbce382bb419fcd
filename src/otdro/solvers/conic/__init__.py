"""The structured interior point: piecewise quadratic losses, any norm."""
