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

// The result types are `types`, C++ of the adaptor `op`, for builders and the verifier
// (Inference.h). The trait comes first: its error names both types. MLIR's check would repeat it.
class Graph_InferenceTrait<string name, string types> : NativeOpTrait<name, [], [{
    static bool isCompatibleReturnTypes(::mlir::TypeRange, ::mlir::TypeRange) { return true; }
  }], [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(::mlir::MLIRContext *context,
        ::std::optional<::mlir::Location>, ::mlir::ValueRange operands,
        ::mlir::DictionaryAttr attributes, ::mlir::OpaqueProperties properties,
        ::mlir::RegionRange regions, ::llvm::SmallVectorImpl<::mlir::Type> &result) {
      using namespace ::tessera::graph::detail;
      Adaptor op(operands, attributes, properties, regions);
      result.assign({}] # types # [{});
      return ::mlir::success();
    }
  }]> {
  let cppNamespace = "::tessera::graph";
}
class Graph_Inferred<string name, string types> : TraitList<[Graph_InferenceTrait<name, types>,
    DeclareOpInterfaceMethods<InferTypeOpInterface>]>;
class Graph_InfersTypes<string types> : Graph_Inferred<"Inferred<false>::Impl", types>;
// The verifier compares shapes only: of another element type, the builder is given the type.
class Graph_InfersShapes<string types> : Graph_Inferred<"Inferred<true>::Impl", types>;

class Graph_Op<string mnemonic, list<Trait> traits = []>
    : Op<Graph_Dialect, mnemonic, !listconcat([Pure], traits)>;

#endif
