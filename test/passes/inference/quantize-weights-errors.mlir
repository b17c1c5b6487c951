// RUN: tessera-opt %s --verify-diagnostics --quantize-weights="bits=4 floats group=64"

// expected-error @+1 {{quantize-weights: `floats` of 4 bits are of `frozen` matrices, in groups of 64}}
module {
}
