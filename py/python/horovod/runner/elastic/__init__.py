"""The launcher's part of elastic training: which hosts there are, which worker is where, and who tells the workers."""
