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
  // Of the tokens that inference has read, not in checkpoints: keys and values in pages, and the
  // state of recurrent layers, one entry for each sequence.
  I32EnumAttrCase<"cache", 3>, I32EnumAttrCase<"recurrent", 4>]>;
def Graph_RoleAttr : Graph_EnumAttr<Graph_Role, "role">;

def Graph_Program : Graph_Enum<"Program", "what a public function computes", [
  I32EnumAttrCase<"init", 0>, I32EnumAttrCase<"loss", 1>, I32EnumAttrCase<"logits", 2>,
  I32EnumAttrCase<"prepare_step", 3>, I32EnumAttrCase<"finish_step", 4>,
  I32EnumAttrCase<"gradients", 5>, I32EnumAttrCase<"train_step", 6>,
  I32EnumAttrCase<"eval_step", 7>, I32EnumAttrCase<"calibrate", 8>,
  // A module has several of these, one for each bucket of shapes.
  I32EnumAttrCase<"prefill", 9>, I32EnumAttrCase<"decode", 10>, I32EnumAttrCase<"embed", 11>,
  // Instead of train_step (BuildTrainStep{separate}).
  I32EnumAttrCase<"forward_backward", 12>, I32EnumAttrCase<"optimizer_step", 13>,
  I32EnumAttrCase<"init_trained", 14>]>;
def Graph_ProgramAttr : Graph_EnumAttr<Graph_Program, "program"> {
  let assemblyFormat = "`<` $value `>`";
}

def Graph_Direction : Graph_Enum<"Direction", "direction in which a layer is run", [
  I32EnumAttrCase<"forward", 0>, I32EnumAttrCase<"backward", 1>]>;

def Graph_LayerAttr : AttrDef<Graph_Dialect, "Layer"> {
  let mnemonic = "layer";
  let summary = "a layer of the model, from 0: that of a state tensor, a call or another op";
  let description = [{
    ```mlir
    #graph.layer<3>
    #graph.layer<3, backward>
    ```
  }];
  let parameters = (ins "int64_t":$index,
                        DefaultValuedParameter<"::tessera::graph::Direction",
                                               "::tessera::graph::Direction::forward">:$direction);
  let builders = [AttrBuilder<(ins "int64_t":$index), [{
    return $_get($_ctxt, index, ::tessera::graph::Direction::forward);
  }]>];
  let assemblyFormat = "`<` $index (`,` $direction^)? `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    bool isForward() const { return getDirection() == ::tessera::graph::Direction::forward; }
  }];
}

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
