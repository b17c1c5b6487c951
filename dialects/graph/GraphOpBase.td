// Types, traits and base classes that all op families of the dialect share.
#ifndef TESSERA_GRAPH_OP_BASE
#define TESSERA_GRAPH_OP_BASE

include "dialects/graph/GraphAttrs.td"
include "dialects/graph/GraphInterfaces.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Graph_Float : AnyTypeOf<[F32, BF16, F16, F64]>;
def Graph_Int : AnyTypeOf<[I64, I32, I16, I8]>;
/// The type of sums and log-sum-exps: f64 for f64, else f32.
def Graph_Statistic : AnyTypeOf<[F32, F64]>;
def Graph_Element : AnyTypeOf<[F32, BF16, F16, F64, I64, I32, I16, I8, UI8, I1]>;
def Graph_Number : AnyTypeOf<[F32, BF16, F16, F64, I64, I32, I16, I8]>;
def Graph_IntOrBool : AnyTypeOf<[I64, I32, I16, I8, I1]>;
def Graph_Tensor : StaticShapeTensorOf<[Graph_Element]>;
def Graph_FloatTensor : StaticShapeTensorOf<[Graph_Float]>;
// Types with arithmetic: neither booleans nor unsigned bytes.
def Graph_NumberTensor : StaticShapeTensorOf<[Graph_Number]>;
def Graph_IntOrBoolTensor : StaticShapeTensorOf<[Graph_IntOrBool]>;
def Graph_IntTensor : StaticShapeTensorOf<[Graph_Int]>;
def Graph_BoolTensor : StaticShapeTensorOf<[I1]>;
def Graph_ScalarInt : 0DTensorOf<[I64, I32]>;

def Graph_CostedDefault : DeclareOpInterfaceMethods<Graph_Costed>;
def Graph_DifferentiableOp : DeclareOpInterfaceMethods<Graph_Differentiable>;
def Graph_ShardableOp : DeclareOpInterfaceMethods<Graph_Shardable>;
def Graph_DecomposableOp : DeclareOpInterfaceMethods<Graph_Decomposable>;
// Each op declares its cluster kind in its class declaration.
defvar Graph_FusableOp = Graph_Fusable;

class Graph_Op<string mnemonic, list<Trait> traits = []>
    : Op<Graph_Dialect, mnemonic, !listconcat([Pure], traits)>;

#endif
