// The op families of the graph dialect, and its structure: loops and clusters.
#ifndef TESSERA_GRAPH_OPS
#define TESSERA_GRAPH_OPS

include "dialects/graph/GraphElementwiseOps.td"
include "dialects/graph/GraphShapeOps.td"
include "dialects/graph/GraphMatmulOps.td"
include "dialects/graph/GraphCompositeOps.td"
include "dialects/graph/GraphGroupedOps.td"
include "dialects/graph/GraphMoeOps.td"
include "dialects/graph/GraphCacheOps.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

def Graph_YieldOp : Graph_Op<"yield", [Terminator, ReturnLike,
    ParentOneOf<["LoopOp", "ClusterOp"]>]> {
  let summary = "returns the values of a loop body or a cluster";
  let arguments = (ins Variadic<Graph_Tensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins), [{}]>];
}

def Graph_LoopOp : Graph_Op<"loop", [SingleBlock, AutomaticAllocationScope,
    AllTypesMatch<["inits", "results"]>]> {
  let summary = "runs its body `trip` times with loop-carried values";
  let description = [{
    The body's arguments are the induction variable (a tensor<i32>, 0 … trip-1) and one value for
    each init; it yields the values of the next iteration. Values from outside may be used inside.
    Created by autodiff (microbatches) and by `expand-linear-cross-entropy` (chunks of tokens);
    planning replaces it by `plan.loop`.

    If it is `counted`, its first carried value, an i32[] that is the same in all iterations, limits
    their number. The iterations of an `overflow` loop are the rounds of exchanges after the first
    (`add-overflow-rounds`): on whole tensors there are none, and `partition-to-local` makes it a
    counted loop or removes it.

    ```mlir
    %sum = graph.loop 4 (%i, %acc = %zero) : (tensor<f32>) {
      ...
      graph.yield %next : tensor<f32>
    }
    ```
  }];
  let arguments = (ins I64Attr:$trip, UnitAttr:$counted, UnitAttr:$overflow,
                       Variadic<Graph_Tensor>:$inits);
  let results = (outs Variadic<Graph_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "int64_t":$trip, "::mlir::ValueRange":$inits,
    "::llvm::function_ref<void(::mlir::OpBuilder &, ::mlir::Location, "
    "::mlir::Value, ::mlir::ValueRange)>":$body)>];
  let extraClassDeclaration = [{
    ::mlir::Value getInduction() { return getBody().front().getArgument(0); }
    ::mlir::Block::BlockArgListType getCarried() {
      return getBody().front().getArguments().drop_front();
    }
    YieldOp getYield();
  }];
}

def Graph_ClusterOp : Graph_Op<"cluster", [SingleBlock, IsolatedFromAbove, Graph_CostedDefault]> {
  let summary = "ops that become one kernel";
  let description = [{
    Created by fusion, consumed by `passes/kernels`. Isolated from above, so that equal clusters
    print alike and share one kernel. The body has only graph ops and no nested cluster.
    `accumulates` lists pairs (input, output) that share memory: the kernel reads the input only at
    elements of the output that it writes.

    ```mlir
    %y = graph.cluster contraction "linear_gelu" (%x, %w, %b) : (...) -> tensor<...> {
    ^bb0(%x: ..., %w: ..., %b: ...):
      ...
      graph.yield %g : tensor<...>
    }
    ```
  }];
  let arguments = (ins Graph_ClusterKindAttr:$kind, StrAttr:$name, Variadic<Graph_Tensor>:$inputs,
                       OptionalAttr<DenseI64ArrayAttr>:$accumulates);
  let results = (outs Variadic<Graph_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `` $kind $name `(` $inputs `)` attr-dict-with-keyword `:` functional-type($inputs, $results)
    $body
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getFlops();
    YieldOp getYield();
  }];
}

#endif
