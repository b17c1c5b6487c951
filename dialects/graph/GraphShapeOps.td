// Constants and re-indexing. All but pad and dynamic slices are views: fusion
// replaces them by offsets and strides.
#ifndef TESSERA_GRAPH_SHAPE_OPS
#define TESSERA_GRAPH_SHAPE_OPS

include "dialects/graph/GraphOpBase.td"

class Graph_ViewOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, !listconcat([Graph_DifferentiableOp, Graph_CostedDefault,
    Graph_FusableOp, Graph_ShardableOp], traits)> {
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
    bool isView() { return true; }
    int64_t getFlops() { return 0; }
  }];
}

def Graph_ConstantOp : Graph_Op<"constant", [ConstantLike, AllTypesMatch<["value", "result"]>,
    Graph_DifferentiableOp, Graph_FusableOp, Graph_ShardableOp]> {
  let summary = "a tensor known at compile time";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "attr-dict $value";
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
  }];
}

def Graph_IotaOp : Graph_Op<"iota", [Graph_DifferentiableOp, Graph_FusableOp,
    Graph_ShardableOp]> {
  let summary = "each element is its index along one dimension";
  let arguments = (ins I64Attr:$dim);
  let results = (outs Graph_IntTensor:$result);
  let assemblyFormat = "`dim` $dim attr-dict `:` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
  }];
}

def Graph_ReshapeOp : Graph_ViewOp<"reshape"> {
  let summary = "the same elements in row-major order under another shape";
  let arguments = (ins Graph_Tensor:$input);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Graph_TransposeOp : Graph_ViewOp<"transpose", [
    Graph_InfersTypes<"transposedType(op.getInput(), op.getPermutation())">]> {
  let summary = "result dimension i is input dimension permutation[i]";
  let arguments = (ins Graph_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "$input $permutation attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Graph_BroadcastOp : Graph_ViewOp<"broadcast"> {
  let summary = "input dimension i becomes result dimension dims[i]; the others repeat";
  let description = [{
    `dims` is strictly increasing and sizes match: an input dimension of size 1
    is not stretched. A scalar broadcasts with empty `dims`.
  }];
  let arguments = (ins Graph_Tensor:$input, DenseI64ArrayAttr:$dims);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "$input `dims` $dims attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Graph_SliceOp : Graph_ViewOp<"slice"> {
  let summary = "slice [start, start + result shape) of the input with unit stride";
  let arguments = (ins Graph_Tensor:$input, DenseI64ArrayAttr:$start);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "$input $start attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Graph_ConcatOp : Graph_Op<"concat", [Graph_DifferentiableOp, Graph_CostedDefault,
    Graph_FusableOp, Graph_ShardableOp,
    Graph_InfersTypes<"concatType(op.getInputs(), op.getDim())">]> {
  let summary = "concatenates inputs along `dim`";
  let arguments = (ins Variadic<Graph_Tensor>:$inputs, I64Attr:$dim);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "$inputs `dim` $dim attr-dict `:` functional-type($inputs, $result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
    int64_t getFlops() { return 0; }
  }];
}

def Graph_PadOp : Graph_Op<"pad", [Graph_DifferentiableOp, Graph_CostedDefault, Graph_FusableOp,
    Graph_ShardableOp]> {
  let summary = "pads with zeros: `low` before each dimension, the rest after";
  let arguments = (ins Graph_Tensor:$input, DenseI64ArrayAttr:$low);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "$input `low` $low attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
    int64_t getFlops() { return 0; }
  }];
}

def Graph_DynamicSliceOp : Graph_Op<"dynamic_slice", [Graph_DifferentiableOp, Graph_CostedDefault,
    Graph_FusableOp, Graph_ShardableOp, Graph_InfersTypes<"entryType(op.getInput())">]> {
  let summary = "entry `index` of the first dimension, which is removed";
  let description = [{
    The index is the induction variable of an enclosing `graph.loop`, within the dimension. Planning
    replaces the op by an address that advances with the loop.
  }];
  let arguments = (ins Graph_Tensor:$input, Graph_ScalarInt:$index);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = [{
    $input `[` $index `]` attr-dict `:` type($input) `,` type($index) `->` type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
    bool isView() { return true; }
    int64_t getFlops() { return 0; }
  }];
}

def Graph_DynamicUpdateOp : Graph_Op<"dynamic_update", [AllTypesMatch<["input", "result"]>,
    Graph_DifferentiableOp, Graph_CostedDefault, Graph_FusableOp, Graph_ShardableOp]> {
  let summary = "replaces entry `index` of the first dimension";
  let arguments = (ins Graph_Tensor:$input, Graph_Tensor:$update, Graph_ScalarInt:$index);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = [{
    $update `into` $input `[` $index `]` attr-dict `:` type($update) `,` type($index) `->`
    type($result)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
    int64_t getFlops() { return 0; }
  }];
}

#endif
