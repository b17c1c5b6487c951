// Grouped contractions: a matmul for each group of rows, where the number of
// rows of a group is data. Mixtures of experts use them.
#ifndef TESSERA_GRAPH_GROUPED_OPS
#define TESSERA_GRAPH_GROUPED_OPS

include "dialects/graph/GraphOpBase.td"

// Rows come in one of two layouts:
// - packed, [rows, width], rows of a group adjacent: `groups` [groups + 1] are the
//   offsets of the groups, 0 = groups[0] ≤ … ≤ groups[last] ≤ rows. Rows after the last
//   offset belong to no group.
// - padded, [groups, capacity, width]: `groups` [groups] are counts, 0 ≤ count ≤ capacity.
//   Rows of a group from its count on belong to no group.
// The producer of `groups` guarantees this.
class Graph_GroupedOp<string mnemonic, string type> : Graph_Op<mnemonic, [Graph_DecomposableOp,
    Graph_DifferentiableOp, Graph_InfersShapes<type>,
    DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>, Graph_FusableOp, Graph_ShardableOp]> {
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $lhs `,` $rhs `groups` $groups attr-dict `:` functional-type(operands, $result)
  }];
  let hasVerifier = 1;
  code baseDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::grouped;
    }
    /// Whether the layout is padded: `capacity` rows for each group.
    bool isPadded() { return getLhs().getType().getRank() == 3; }
  }];
}

def Graph_GroupedMatmulOp : Graph_GroupedOp<"grouped_matmul",
    "groupedMatmulType(op.getLhs(), op.getRhs(), op.getTransposed())"> {
  let summary = "multiplies each row by the matrix of its group";
  let description = [{
    Packed: `lhs` [rows, k] gives [rows, n]; padded: `lhs` [groups, capacity, k] gives [groups,
    capacity, n]. `rhs` has a matrix for each group: [groups, k, n], or [groups, n, k] if
    `transposed`. Rows of no group give zeros, whatever they contain.

    Both operands have the same element type. Accumulates in f32 (f64 for f64) and rounds once to
    the result's element type, which may have more bits.

    ```mlir
    %y = graph.grouped_matmul %x, %w groups %offsets {transposed} : (tensor<64x32xf32>,
      tensor<8x48x32xf32>, tensor<9xi32>) -> tensor<64x48xf32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$lhs, Graph_FloatTensor:$rhs,
                       StaticShapeTensorOf<[I32]>:$groups,
                       UnitAttr:$transposed);
  let extraClassDeclaration = baseDeclaration;
}

def Graph_GroupedOuterOp : Graph_GroupedOp<"grouped_outer",
    "groupedOuterType(op.getLhs(), op.getRhs(), op.getGroups())"> {
  let summary = "lhsᵀ rhs of the rows of each group";
  let description = [{
    For each group the sum over its rows of the outer product lhs row × rhs row: the gradient of
    `grouped_matmul`'s weights. Packed: `lhs` [rows, m] and `rhs` [rows, n]; padded: [groups,
    capacity, m] and [groups, capacity, n]. The result is [groups, m, n]; a group without rows gives
    zeros. Rows of no group are ignored. Element types are as in `grouped_matmul`.

    ```mlir
    %dw = graph.grouped_outer %dy, %x groups %offsets : (tensor<64x48xf32>, tensor<64x32xf32>,
      tensor<9xi32>) -> tensor<8x48x32xf32>
    ```
  }];
  let arguments = (ins Graph_FloatTensor:$lhs, Graph_FloatTensor:$rhs,
                       StaticShapeTensorOf<[I32]>:$groups);
  let extraClassDeclaration = baseDeclaration;
}

#endif
