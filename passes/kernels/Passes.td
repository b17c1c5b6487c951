#ifndef TESSERA_KERNELS_PASSES
#define TESSERA_KERNELS_PASSES

include "mlir/Pass/PassBase.td"

def PlanKernels : Pass<"plan-kernels", "::mlir::ModuleOp"> {
  let summary = "chooses the kernel of every contraction and attention: engine, tile, operands";
  let description = [{
    Writes the choice as `tile.plan` on the cluster, where a person or a tuner may change it before
    `emit-kernels`. A plan that is there already is kept, if there is such a kernel. Clusters of
    other kinds have one kernel each, and a plan on them is an error.

    ```mlir
    %y = graph.cluster contraction "linear" (%x, %w) attributes {tile.plan =
        #tile.contraction_plan<matrix, lhs = packed, rhs = streamed, tile = [64, 256]>} : ...
    %z = graph.cluster paged_attention "attention" (%q, ...) attributes {tile.plan =
        #tile.attention_plan<tensor_core, tile = [16, 64], split = 256>} : ...
    ```

    With `print` a table goes to stderr: cluster, module, kind, engine, operands, tile, blocks,
    layer. README.md in this folder defines its columns.

    Afterwards every cluster of contraction, grouped, attention, attention_grad and paged_attention
    has a plan that `emit-kernels` can follow.
  }];
  let options = [ListOption<"targets", "targets", "std::string",
    "targets to choose kernels for; all CPU targets if empty">,
    Option<"print", "print", "bool", "false", "print a table of the kernels">,
    Option<"byteRows", "byte-rows", "bool", "false",
      "on CPUs, round bf16 rows to int8, for weights in int8, int4 or super-blocks">];
  let dependentDialects = ["::tessera::tile::TileDialect"];
}

def PadRows : Pass<"pad-rows", "::mlir::ModuleOp"> {
  let summary = "begins the rows of a GPU's intermediates at aligned addresses";
  let description = [{
    A row of 50257 elements, a vocabulary, begins at any address: no tensor map describes such
    rows, and neither `cp.async` nor a thread moves 16 bytes of them at once. Where rows are the
    program's own, results of one cluster that others read, they get unused elements at their ends,
    up to a multiple of 32 bytes (a sector). The producer yields a `graph.pad` with `tile.unread`,
    whose padding its kernel does not write; consumers read a `graph.slice`. Only long rows are
    padded, made by row and contraction clusters and read by these and column clusters of the same
    block. Nothing changes for CPUs.

    Before:
    ```mlir
    %p = graph.cluster row "softmax" (%x) : (tensor<512x501xf32>) -> tensor<512x501xbf16> { ...
      graph.yield %r : tensor<512x501xbf16>
    }
    %y = graph.cluster contraction "linear" (%p, %w) : (tensor<512x501xbf16>, ... {
    ^bb0(%a: tensor<512x501xbf16>, %b: tensor<501x768xbf16>):
    ```
    After:
    ```mlir
    %p = graph.cluster row "softmax" (%x) : (tensor<512x501xf32>) -> tensor<512x512xbf16> { ...
      %s = graph.pad %r low [0, 0] {tile.unread} : tensor<512x501xbf16> -> tensor<512x512xbf16>
      graph.yield %s : tensor<512x512xbf16>
    }
    %y = graph.cluster contraction "linear" (%p, %w) : (tensor<512x512xbf16>, ... {
    ^bb0(%a: tensor<512x512xbf16>, %b: tensor<501x768xbf16>):
      %s = graph.slice %a [0, 0] : tensor<512x512xbf16> -> tensor<512x501xbf16>
    ```

    Afterwards what a `graph.pad` with `tile.unread` puts at the end of rows has no reader.
  }];
  let options = [ListOption<"targets", "targets", "std::string",
    "targets whose kernels will read the rows; all CPU targets if empty">];
}

def EmitKernels : Pass<"emit-kernels", "::mlir::ModuleOp"> {
  let summary = "converts every cluster to launches of kernels";
  let description = [{
    Each cluster goes through the skeleton of its kind. Clusters that compute the same on
    buffers of the same types share a kernel, elementwise ones over dense tensors even where
    their sizes differ. Kernels are in a nested module for each target, whose attribute
    `tile.target` names it. Launches name only the kernel, so that the runtime may choose among
    targets. Kernels of large matmuls for a GPU list kernel variants with other tiles
    (`tile.variants`), among which the runtime chooses by timing.

    Before:
    ```mlir
    %y = graph.cluster elementwise "relu" (%x) : (tensor<8x4xf32>) -> tensor<8x4xf32> {
    ^bb0(%a: tensor<8x4xf32>):
      %r = graph.relu %a : tensor<8x4xf32>
      graph.yield %r : tensor<8x4xf32>
    }
    ```
    After:
    ```mlir
    %y = tile.launch @relu(%x) blocks [1] sizes [32] reuse [0, 0]
      : (tensor<8x4xf32>) -> tensor<8x4xf32>
    ...
    module @cpu_avx2 attributes {tile.target = "cpu:avx2"} {
      tile.kernel @relu(%block: index, %n: index, %x: memref<?xf32>, %y: memref<?xf32>) ...
    ```

    Afterwards no cluster remains.
  }];
  let options = [ListOption<"targets", "targets", "std::string",
    "targets to make kernels for; all CPU targets if empty">,
    Option<"allVariants", "all-variants", "bool", "false",
    "on a GPU, a kernel variant for every tile of every matmul, however slow: for tests">];
  let dependentDialects = ["::tessera::tile::TileDialect", "::mlir::arith::ArithDialect",
    "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
    "::mlir::vector::VectorDialect"];
}

def GroupLaunches : Pass<"group-launches", "::mlir::func::FuncOp"> {
  let summary = "merges independent launches of one kernel into one launch with instances";
  let description = [{
    Launches of the same kernel, none of which depends on another, become one: a parallel
    region over many small tensors instead of many small regions. Only flat kernels take part,
    and only launches with no other kind of work between them: joining those of all layers
    would keep tensors of all layers alive. The launch is placed after its last operand.

    Before:
    ```mlir
    %a = tile.launch @sgd(%p, %g) blocks [1] sizes [32] : ...
    %b = tile.launch @sgd(%q, %h) blocks [2] sizes [64] : ...
    ```
    After:
    ```mlir
    %a, %b = tile.launch @sgd(%p, %g, %q, %h) blocks [1, 2] sizes [32, 64] : ...
    ```

    Afterwards no two launches of one flat kernel in a stretch of such launches are independent
    of each other.
  }];
}

def InsertBarriers : Pass<"insert-barriers", "::mlir::ModuleOp"> {
  let summary = "inserts the barriers between threads of GPU kernels";
  let description = [{
    Between a write to memory and the next read of it; at the beginning of the iterations of a loop
    that does both; and between a read of one element by all threads and the next write of it.
    Where a launch may put a result in the place of an operand, also between a read of the operand
    by several threads, which slices of a tile are too, and the write of the result.
    Copies to swizzled memory are ordered by `tile.wait` and rings. Kernels for CPUs have one
    thread a block and are left alone.

    Before:
    ```mlir
    tile.store %x, %kept[%i] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
    %y = tile.load %kept[%j] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    ```
    After:
    ```mlir
    tile.store %x, %kept[%i] along [0] : vector<64xf32>, memref<64xf32, #tile.shared>
    tile.barrier
    %y = tile.load %kept[%j] along [0] : memref<64xf32, #tile.shared>, vector<64xf32>
    ```

    Afterwards `verify-tiled` finds no barrier missing.
  }];
  let dependentDialects = ["::tessera::tile::TileDialect"];
}

def VerifyTiled : Pass<"verify-tiled", "::mlir::ModuleOp"> {
  let summary = "verifies that only launches, loops and contiguous views remain";
  let description = [{
    A function after `emit-kernels` holds tile.launch, graph.loop, graph.yield, graph.constant,
    graph.reshape, a contiguous graph.slice, graph.dynamic_slice, graph.dynamic_update, a
    graph.concat of rows and func.return, nothing else; every launch names a kernel that each
    target's module has, with operands, results and sizes that fit it. In kernels for GPUs barriers
    separate each read of memory from what other threads wrote before.
  }];
}

#endif
