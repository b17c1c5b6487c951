#ifndef TESSERA_GRAPH_ATTRS
#define TESSERA_GRAPH_ATTRS

include "dialects/graph/GraphDialect.td"
include "mlir/IR/EnumAttr.td"

class Graph_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let genSpecializedAttr = 0;
  let cppNamespace = "::tessera::graph";
}

class Graph_EnumAttr<EnumAttrInfo info, string mnemonic>
    : EnumAttr<Graph_Dialect, info, mnemonic>;

def Graph_ComparePredicate : Graph_Enum<"ComparePredicate",
    "predicate of an elementwise comparison", [
  I32EnumAttrCase<"eq", 0>, I32EnumAttrCase<"ne", 1>, I32EnumAttrCase<"lt", 2>,
  I32EnumAttrCase<"le", 3>, I32EnumAttrCase<"gt", 4>, I32EnumAttrCase<"ge", 5>]>;
def Graph_ComparePredicateAttr : Graph_EnumAttr<Graph_ComparePredicate, "predicate">;

def Graph_ReduceKind : Graph_Enum<"ReduceKind", "operation of a reduction", [
  I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>, I32EnumAttrCase<"min", 2>]>;
def Graph_ReduceKindAttr : Graph_EnumAttr<Graph_ReduceKind, "reduce_kind">;

def Graph_GeluKind : Graph_Enum<"GeluKind", "variant of GELU", [
  I32EnumAttrCase<"erf", 0>,      // x Φ(x)
  I32EnumAttrCase<"tanh", 1>,     // Hendrycks & Gimpel 2016, tanh form ("gelu_new")
  I32EnumAttrCase<"quick", 2>]>;  // x sigmoid(1.702 x) (CLIP)
def Graph_GeluKindAttr : Graph_EnumAttr<Graph_GeluKind, "gelu_kind">;

def Graph_RandomKind : Graph_Enum<"RandomKind", "distribution of random elements", [
  I32EnumAttrCase<"uniform", 0>,   // [0, 1)
  I32EnumAttrCase<"normal", 1>]>;  // N(0, 1), Box–Muller
def Graph_RandomKindAttr : Graph_EnumAttr<Graph_RandomKind, "random_kind">;

def Graph_Role : Graph_Enum<"Role", "role of a state tensor in checkpoints", [
  I32EnumAttrCase<"parameter", 0>, I32EnumAttrCase<"optimizer", 1>,
  I32EnumAttrCase<"counter", 2>,
  I32EnumAttrCase<"cache", 3>]>;  // keys and values of earlier tokens: not in checkpoints
def Graph_RoleAttr : Graph_EnumAttr<Graph_Role, "role">;

// The kind of a fusion cluster selects the skeleton that builds its kernel.
def Graph_ClusterKind : Graph_Enum<"ClusterKind", "skeleton that builds a cluster's kernel", [
  I32EnumAttrCase<"elementwise", 0>,
  // an output element depends on input elements at the same index
  I32EnumAttrCase<"row", 1>,            // reductions along the last dimension, with adjacent ops
  I32EnumAttrCase<"column", 2>,         // reductions over all but the last dimension(s)
  I32EnumAttrCase<"contraction", 3>,    // one einsum with its epilogue
  I32EnumAttrCase<"attention", 4>,
  I32EnumAttrCase<"attention_grad", 5>,
  I32EnumAttrCase<"gather", 6>,         // rows gathered by index
  I32EnumAttrCase<"scatter", 7>,        // rows scattered by index
  I32EnumAttrCase<"reduce_all", 8>,     // a whole tensor to one number, in fixed blocks
  I32EnumAttrCase<"paged_attention", 9>,
  I32EnumAttrCase<"grouped", 10>,       // a matmul for each group of rows, with its epilogue
  I32EnumAttrCase<"sample", 11>]>;      // tokens sampled from logits
def Graph_ClusterKindAttr : Graph_EnumAttr<Graph_ClusterKind, "cluster_kind">;

#endif
