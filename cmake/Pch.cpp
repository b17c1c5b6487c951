// Compiles cmake/Pch.h once for all compiler libraries.
