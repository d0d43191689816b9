"""Methods that fedgranger is compared with, behind one protocol (`method_protocol`)."""
