// RUN: tessera-opt %s --verify-diagnostics --quantize-weights="bits=4 floats"

// expected-error @+1 {{quantize-weights: `floats` have 8 bits and no zero points}}
module {
}
