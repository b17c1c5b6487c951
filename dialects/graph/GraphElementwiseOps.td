// Elementwise ops: one shape in, the same shape out. Broadcasting is explicit
// (graph.broadcast): it is an index map that fusion absorbs.
#ifndef TESSERA_GRAPH_ELEMENTWISE_OPS
#define TESSERA_GRAPH_ELEMENTWISE_OPS

include "dialects/graph/GraphOpBase.td"

class Graph_ElementwiseOp<string mnemonic, list<Trait> traits = []>
    : Graph_Op<mnemonic, !listconcat([
        Elementwise, SameOperandsAndResultShape,
        DeclareOpInterfaceMethods<Graph_Elementwise>,
        Graph_DifferentiableOp, Graph_CostedDefault, Graph_FusableOp, Graph_Shardable], traits)> {
  // Sets of operands in which the op is linear together (OpRule::linear): partial values pass
  // through.
  string linear = "{}";
  let extraClassDeclaration = [{
    ::tessera::graph::ClusterKind getClusterKind() {
      return ::tessera::graph::ClusterKind::elementwise;
    }
    ::tessera::graph::OpRule getShardingRule() {
      return ::tessera::graph::detail::pointwiseRule(*this, }] # linear # [{);
    }
  }];
}

class Graph_UnaryOp<string mnemonic, string meaning>
    : Graph_ElementwiseOp<mnemonic, [SameOperandsAndResultType]> {
  let summary = meaning;
  let arguments = (ins Graph_FloatTensor:$input);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

class Graph_BinaryOp<string mnemonic, string meaning, list<Trait> traits = [],
                     TypeConstraint operand = Graph_NumberTensor>
    : Graph_ElementwiseOp<mnemonic, !listconcat([SameOperandsAndResultType], traits)> {
  let summary = meaning;
  let arguments = (ins operand:$lhs, operand:$rhs);
  let results = (outs operand:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def Graph_NegOp : Graph_UnaryOp<"neg", "-x"> { let linear = "{{0}}"; }
def Graph_AbsOp : Graph_UnaryOp<"abs", "|x|; gradient 0 at 0">;
def Graph_ExpOp : Graph_UnaryOp<"exp", "e^x">;
def Graph_LogOp : Graph_UnaryOp<"log", "natural logarithm">;
def Graph_Log1pOp : Graph_UnaryOp<"log1p", "natural logarithm of 1 + x, exact for small x">;
def Graph_SqrtOp : Graph_UnaryOp<"sqrt", "square root">;
def Graph_RsqrtOp : Graph_UnaryOp<"rsqrt", "1 / square root">;
def Graph_TanhOp : Graph_UnaryOp<"tanh", "hyperbolic tangent">;
def Graph_ErfOp : Graph_UnaryOp<"erf", "error function">;
def Graph_SinOp : Graph_UnaryOp<"sin", "sine of radians">;
def Graph_CosOp : Graph_UnaryOp<"cos", "cosine of radians">;
def Graph_SigmoidOp : Graph_UnaryOp<"sigmoid", "1 / (1 + e^-x)">;
def Graph_ReluOp : Graph_UnaryOp<"relu", "max(x, 0); gradient 0 at 0">;
def Graph_SiluOp : Graph_UnaryOp<"silu", "x sigmoid(x)">;

def Graph_GeluOp : Graph_ElementwiseOp<"gelu", [SameOperandsAndResultType]> {
  let summary = "x Φ(x), exact or in one of its two usual approximations";
  let arguments = (ins Graph_FloatTensor:$input, Graph_GeluKindAttr:$kind);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input `` $kind attr-dict `:` type($result)";
}

def Graph_GeluGradOp : Graph_ElementwiseOp<"gelu_grad",
    [AllTypesMatch<["input", "cotangent", "result"]>]> {
  let summary = "cotangent × d gelu(x)/dx; created by autodiff, absorbed by fusion";
  let description = [{
    One op rather than a dozen, so that dumps of a backward pass stay readable. It has no gradient:
    second derivatives are not supported.
  }];
  let arguments = (ins Graph_FloatTensor:$input, Graph_FloatTensor:$cotangent,
                       Graph_GeluKindAttr:$kind);
  let results = (outs Graph_FloatTensor:$result);
  let assemblyFormat = "$input `,` $cotangent `` $kind attr-dict `:` type($result)";
}

def Graph_AddOp : Graph_BinaryOp<"add", "x + y", [Commutative]> {
  let linear = "{{0, 1}}";
  let hasCanonicalizer = 1;
}
def Graph_SubOp : Graph_BinaryOp<"sub", "x - y"> { let linear = "{{0, 1}}"; }
def Graph_MulOp : Graph_BinaryOp<"mul", "x × y", [Commutative]> {
  let linear = "{{0}, {1}}";
  let hasCanonicalizer = 1;
}
def Graph_DivOp : Graph_BinaryOp<"div", "x / y; integer division truncates"> {
  let linear = "{{0}}";
}
def Graph_MaxOp : Graph_BinaryOp<"max", "the larger; gradient to lhs where equal", [Commutative]>;
def Graph_MinOp : Graph_BinaryOp<"min", "the smaller; gradient to lhs where equal", [Commutative]>;
def Graph_PowOp : Graph_BinaryOp<"pow", "x^y for x > 0", [], Graph_FloatTensor>;
def Graph_AndOp : Graph_BinaryOp<"and", "bitwise and of integers, logical and of i1",
                                 [Commutative], Graph_IntOrBoolTensor>;
def Graph_OrOp : Graph_BinaryOp<"or", "bitwise or of integers, logical or of i1",
                                [Commutative], Graph_IntOrBoolTensor>;

def Graph_CompareOp : Graph_ElementwiseOp<"compare", [AllTypesMatch<["lhs", "rhs"]>,
    Graph_InfersTypes<"tensorType(op.getLhs()).clone(::mlir::IntegerType::get(context, 1))">]> {
  let summary = "elementwise comparison; false if an operand is NaN, except `ne`";
  let arguments = (ins Graph_NumberTensor:$lhs, Graph_NumberTensor:$rhs,
                       Graph_ComparePredicateAttr:$predicate);
  let results = (outs Graph_BoolTensor:$result);
  let assemblyFormat = "$lhs `` $predicate $rhs attr-dict `:` type($lhs) `->` type($result)";
}

def Graph_SelectOp : Graph_ElementwiseOp<"select",
    [AllTypesMatch<["onTrue", "onFalse", "result"]>]> {
  let summary = "condition ? onTrue : onFalse";
  let arguments = (ins Graph_BoolTensor:$condition, Graph_Tensor:$onTrue, Graph_Tensor:$onFalse);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = [{
    $condition `,` $onTrue `,` $onFalse attr-dict `:` type($condition) `,` type($result)
  }];
}

def Graph_ConvertOp : Graph_ElementwiseOp<"convert"> {
  let summary = "change of element type; floats round to nearest even, float to integer truncates";
  let description = [{
    Booleans become 0 and 1. Conversion to a boolean is not supported; use `graph.compare`. A float
    outside the integer type's range gives an unspecified integer.
  }];
  let arguments = (ins Graph_Tensor:$input);
  let results = (outs Graph_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let linear = "::tessera::graph::detail::linearConversion(*this)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif
