"""The modules of the second verifier, each for a part of the pages in spec/."""
