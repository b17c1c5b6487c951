#ifndef TESSERA_INFERENCE_PASSES
#define TESSERA_INFERENCE_PASSES

include "mlir/Pass/PassBase.td"

def NarrowState : Pass<"narrow-state", "::mlir::ModuleOp"> {
  let summary = "stores weights and caches in the type in which they are read";
  let description = [{
    For inference, where weights are never updated: parameters and caches of rank 2 or more become
    bf16 in all programs, and the conversions of state are removed. Rows of a table are upcast after
    they are gathered.

    Before:
    ```mlir
    func.func @decode_1(%w: tensor<8x16xf32> {graph.state = "w", ...}, ...) {
      %w16 = graph.convert %w : tensor<8x16xf32> -> tensor<8x16xbf16>
      %y = graph.einsum "mk,kn->mn" %x, %w16 : (tensor<4x8xbf16>, tensor<8x16xbf16>)
        -> tensor<4x16xbf16>
    ```
    After:
    ```mlir
    func.func @decode_1(%w: tensor<8x16xbf16> {graph.state = "w", ...}, ...) {
      %y = graph.einsum "mk,kn->mn" %x, %w : (tensor<4x8xbf16>, tensor<8x16xbf16>)
        -> tensor<4x16xbf16>
    ```
    Afterwards no parameter or cache of rank 2 or more is f32.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
}

def AddLogSums : Pass<"add-log-sums", "::mlir::ModuleOp"> {
  let summary = "programs return log Σ exp of their logits, as a training step computes it";
  let description = [{
    The log-probability of a token is its logit minus this sum. It is made of the primitives that
    `graph.linear_cross_entropy` consists of, after the element types are chosen: both are f32.

    Before:
    ```mlir
    func.func @decode_1(...) -> (tensor<1x64xf32> {graph.output = "logits"}, ...) {
      return %logits, ...
    ```
    After:
    ```mlir
    func.func @decode_1(...) -> (tensor<1x64xf32> {graph.output = "logits"}, ...,
                                 tensor<1xf32> {graph.output = "log_sums"}) {
      ...
      return %logits, ..., %log_sums
    ```
    Afterwards every program with an output `logits` has one of `log_sums`.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
}

def QuantizeWeights : Pass<"quantize-weights", "::mlir::ModuleOp"> {
  let summary = "quantizes the matrices of linear layers to integers or 8-bit floats with scales";
  let description = [{
    For inference. A parameter of rank 2 that is an operand of einsums is replaced by two,
    `NAME.values` and `NAME.scales`, and a `graph.dequantize` at the function's start. Blocks still
    take the matrix. Matrices used in blocks have `bits`, and zero points with `zeros`; the head,
    used outside blocks, has 8 bits and no zero points. With `floats` all are e4m3fn instead of
    integers. A table whose rows are gathered is kept for that, even if it is also quantized; with
    `tables` its rows are gathered from the `graph.dequantize`, if a matmul reads that too or the
    table has `graph.stored`, so that one copy is left. A stack of matrices of a
    `graph.grouped_matmul`, as in experts, becomes a stack of micropanels, matrix after matrix;
    rows are what matmuls compute, so those of a stack [matrices, in, out] are its columns. Not
    quantized are matrices with fewer than 16 rows or 32 columns, stacks whose rows are not a
    multiple of 16, and parameters with `graph.keep_f32`. `@init` does not return quantized
    parameters; they come from a checkpoint.

    With `floats` of 4 bits, in groups of 64, they are normal floats (NF4). With `frozen` it is for
    training: of parameters with `graph.frozen` (the base of an adapter) the matrices of layers are
    quantized, and what replaces them is frozen too. All of them must be: a matrix that is not read
    by matmuls alone, or is not of whole micropanels and blocks, is an error.

    A parameter with `graph.stored` has the layout that this says, wherever it is used: a file may
    store each matrix in another. With `bits` 0 these are all that are quantized.

    With `bits` 16 nothing is quantized: bf16 matrices become `NAME.values` alone, the same numbers
    in micropanels of 16 rows, which matmuls on CPUs read contiguously. The micropanels of a stack
    are those of one matrix with all rows.

    Before:
    ```mlir
    func.func @decode_1(%w: tensor<64x96xbf16> {graph.state = "w", ...}, ...) {
      %y = call @layer(%x, %w) : (tensor<1x1x96xbf16>, tensor<64x96xbf16>) -> tensor<1x1x64xbf16>
    ```
    After:
    ```mlir
    func.func @decode_1(%q: tensor<4x12x16xi32> {graph.state = "w.values", ...},
      %s: tensor<4x3x16xf16> {graph.state = "w.scales", ...}, ...) {
      %w = graph.dequantize %q, %s bits 4 group 32 : tensor<4x12x16xi32>, tensor<4x3x16xf16>
        -> tensor<64x96xbf16>
      %y = call @layer(%x, %w) : (tensor<1x1x96xbf16>, tensor<64x96xbf16>) -> tensor<1x1x64xbf16>
    ```
    Afterwards every einsum over a parameter of that size reads a `graph.dequantize`, and no
    parameter has `graph.stored`.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
  let options = [
    Option<"bits", "bits", "int64_t", "8",
    "Bits of weights in blocks: 8 or 4; 16: all are bf16 in micropanels; 0: graph.stored alone">,
    Option<"group", "group", "int64_t", "32", "Columns per scale: a multiple of 32">,
    Option<"zeros", "zeros", "bool", "false",
    "Each scale of weights in blocks has a zero point">,
    Option<"floats", "floats", "bool", "false",
    "8-bit weights are e4m3fn, 4-bit ones NF4, instead of integers">,
    Option<"tables", "tables", "bool", "false",
    "Rows of tables are gathered from their quantized form">,
    Option<"frozen", "frozen", "bool", "false",
    "Matrices of layers with graph.frozen, and no others">];
}

#endif
