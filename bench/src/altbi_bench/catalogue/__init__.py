"""Catalogues: data sets of ADBench, compared systems, protocols, variants of ALTBI-I."""
