#ifndef TESSERA_PRECISION_PASSES
#define TESSERA_PRECISION_PASSES

include "mlir/Pass/PassBase.td"

def Precision_ComputeOption : Option<"compute", "compute", "::tessera::recipe::Precision",
    "::tessera::recipe::Precision::Fp32", "The element type of contractions", [{::llvm::cl::values(
      clEnumValN(::tessera::recipe::Precision::Fp32, "fp32", "f32 throughout"),
      clEnumValN(::tessera::recipe::Precision::Bf16, "bf16", "bf16, accumulated in f32"),
      clEnumValN(::tessera::recipe::Precision::Fp64, "fp64", "f64, after differentiation"))}]>;

def ApplyPrecision : Pass<"apply-precision", "::mlir::ModuleOp"> {
  let summary = "converts matrices and activations to the compute type, before differentiation";
  let description = [{
    With `compute=bf16`, parameters stay f32 arguments (the master weights) of `@loss` and
    `@logits`; matrices are converted once at the function's start. Values stored between kernels
    are bf16; arithmetic inside a kernel is f32 (README.md has the rules). Conversions are ops of
    the forward pass, so the backward pass follows from the gradient of `graph.convert`.
    `compute=fp32` changes nothing, nor does `compute=fp64`: `convert-programs-to-f64` converts
    whole programs after differentiation.

    Before:
    ```mlir
    func.func @loss(%w: tensor<8x16xf32> {graph.state = "w", ...}, ...) {
      %y = graph.einsum "mk,kn->mn" %x, %w : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
      %z = graph.add %y, %bias : tensor<4x16xf32>
      %g = graph.gelu %z erf : tensor<4x16xf32>
    ```
    After:
    ```mlir
      %w16 = graph.convert %w : tensor<8x16xf32> -> tensor<8x16xbf16>
      %y = graph.einsum "mk,kn->mn" %x, %w16 : (tensor<4x8xbf16>, tensor<8x16xbf16>)
        -> tensor<4x16xf32>
      %z = graph.add %y, %bias : tensor<4x16xf32>
      %z16 = graph.convert %z : tensor<4x16xf32> -> tensor<4x16xbf16>
      %z32 = graph.convert %z16 : tensor<4x16xbf16> -> tensor<4x16xf32>
      %g = graph.gelu %z32 erf : tensor<4x16xf32>
    ```
    Afterwards no contraction, attention or norm has an f32 operand of rank 2 or more, and no block
    takes or returns such a value.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
  let options = [Precision_ComputeOption,
    Option<"roundRows", "round-rows", "bool", "false",
           "Round rows of tables, as inference does, whose tables are bf16">];
}

def ConvertProgramsToF64 : Pass<"convert-programs-to-f64", "::mlir::ModuleOp"> {
  let summary = "converts programs from f32 to f64";
  let description = [{
    Every f32 tensor of every function becomes f64: parameters, moments, activations, gradients and
    scalars that the host reads. Still f32 are the hyperparameters, which the host writes; random
    numbers, which are f32 by definition; and outputs of rank 1 or more, which are metrics and
    scores.

    Before:
    ```mlir
    func.func @train_step(%w: tensor<8xf32> {graph.state = "w", ...},
      %h: tensor<12xf32> {graph.state = "hyper", ...}, ...) {
      %lr = graph.slice %h [0] : tensor<12xf32> -> tensor<1xf32>
    ```
    After:
    ```mlir
    func.func @train_step(%w: tensor<8xf64> {graph.state = "w", ...},
      %h: tensor<12xf32> {graph.state = "hyper", ...}, ...) {
      %h64 = graph.convert %h : tensor<12xf32> -> tensor<12xf64>
      %lr = graph.slice %h64 [0] : tensor<12xf64> -> tensor<1xf64>
    ```
    Afterwards only conversions and `graph.random` have f32 results.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
}

def VerifyPrecision : Pass<"verify-precision", "::mlir::ModuleOp"> {
  let summary = "verifies that contractions, composites and blocks have the compute type";
  let description = [{
    With `compute=fp32` or `fp64`: every float is f32. With `compute=bf16`, in blocks and in
    programs with parameters: parameters with an update are f32; no contraction, attention, norm or
    head has an f32 operand of rank 2 or more; no block takes or returns an f32 tensor of rank 2 or
    more.
  }];
  let options = [Precision_ComputeOption];
}

def F32WeightGradients : Pass<"f32-weight-gradients", "::mlir::ModuleOp"> {
  let summary = "makes contractions return f32 gradients of f32 parameters";
  let description = [{
    A master weight is f32, its bf16 copy has a bf16 cotangent, and the gradient of the conversion
    upcasts that: one rounding too many. From each gradient that `@gradients` returns, this pass
    moves the upcast to the producer: through sums, views and block functions to the contraction,
    `scatter_add` or `linear_cross_entropy_grad`, which then stores its f32 accumulator without
    rounding.

    Before:
    ```mlir
    %d16 = graph.einsum "mk,mn->kn" %x, %dy : (tensor<4x8xbf16>, tensor<4x16xbf16>)
      -> tensor<8x16xbf16>
    %d = graph.convert %d16 : tensor<8x16xbf16> -> tensor<8x16xf32>
    ```
    After:
    ```mlir
    %d = graph.einsum "mk,mn->kn" %x, %dy : (tensor<4x8xbf16>, tensor<4x16xbf16>)
      -> tensor<8x16xf32>
    ```
    Afterwards no returned gradient is the upcast of a contraction without other uses.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
}

#endif
