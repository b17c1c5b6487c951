// Ops of the paged KV cache: keys and values of earlier tokens, in pages that
// are allocated to sequences one by one (Kwon et al. 2023).
#ifndef TESSERA_GRAPH_CACHE_OPS
#define TESSERA_GRAPH_CACHE_OPS

include "dialects/graph/GraphCompositeOps.td"

def Graph_ScatterRowsOp : Graph_Op<"scatter_rows", [AllTypesMatch<["base", "result"]>,
    Graph_DifferentiableOp, Graph_CostedDefault, Graph_FusableOp, Graph_RowScatter,
    Graph_ShardableOp]> {
  let summary = "replaces rows `ids` of `base` by rows of `updates`";
  let description = [{
    `base` is [rows, width], `ids` any shape of integers, `updates` has the shape of `ids` with
    `width` appended. A row with a negative id is not written, so that padding of a bucket does not
    change a cache. Nonnegative ids must be distinct and less than `rows`; the allocator of pages
    guarantees this.
  }];
  let arguments = (ins Graph_NumberTensor:$base, Graph_IntTensor:$ids, Graph_NumberTensor:$updates);
  let results = (outs Graph_NumberTensor:$result);
  let assemblyFormat = [{
    $updates `at` $ids `into` $base attr-dict `:` type($updates) `,` type($ids) `,` type($base)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::scatter;
    }
    bool adds() { return false; }
    int64_t getFlops() { return 0; }
    int64_t getBytes() {
      return 2 * ::tessera::graph::detail::countBytes(getUpdates()) +
             ::tessera::graph::detail::countBytes(getIds());
    }
  }];
}

def Graph_PagedAttentionOp : Graph_Op<"paged_attention", [Graph_DecomposableOp,
    Graph_DifferentiableOp,
    DeclareOpInterfaceMethods<Graph_Costed, ["getFlops"]>, Graph_FusableOp, Graph_ShardableOp,
    AllTypesMatch<["query", "result"]>, AllTypesMatch<["keys", "values"]>,
    AllTypesMatch<["starts", "lengths"]>]> {
  let summary = "attention over keys and values in the pages of a KV cache";
  let description = [{
    `query` [batch, tokens, heads, head_dim] are the newest tokens of `batch` sequences. `keys` and
    `values` [pages, page, kv_heads, head_dim] hold all sequences: key s of sequence b is row s mod
    page of page `table`[b, s / page]. Query t of sequence b has position `starts`[b] + t and
    attends to key s if s <= starts[b] + t, s < `lengths`[b] and, when given, starts[b] + t - s <
    `window`. A query without visible keys, such as in a sequence of length 0, gives zeros. Rows
    from a sequence's length on and pages without visible keys are never used, even if they hold
    NaN.

    lengths[b] is at most (columns of `table`) × page; entries of the table with visible keys are in
    [0, pages). heads is a multiple of kv_heads, `cap` bounds scores, and `sinks` [heads] add to
    the softmax's divisor, as in `attention`. With `keep_f32` it computes in f32, whatever the types
    of queries and pages are.
  }];
  let arguments = (ins Graph_FloatTensor:$query, Graph_FloatTensor:$keys, Graph_FloatTensor:$values,
                       StaticShapeTensorOf<[I32]>:$table, StaticShapeTensorOf<[I32]>:$starts,
                       StaticShapeTensorOf<[I32]>:$lengths,
                       Optional<1DTensorOf<[F32, F64]>>:$sinks,
                       F64Attr:$scale, OptionalAttr<I64Attr>:$window, OptionalAttr<F64Attr>:$cap,
                       UnitAttr:$keep_f32);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = [{
    $query `,` $keys `,` $values `pages` $table `starts` $starts `lengths` $lengths
    (`sinks` $sinks^ `:` type($sinks))? `scale` $scale attr-dict `:` type($query) `,` type($keys)
    `,` type($table) `,` type($starts)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::paged_attention;
    }
  }];
}

#endif
