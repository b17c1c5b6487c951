// The interface by which passes query collectives.
#ifndef TESSERA_DIST_INTERFACES
#define TESSERA_DIST_INTERFACES

include "mlir/IR/OpBase.td"

def Dist_CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let cppNamespace = "::tessera::dist";
  let description = [{
    An op in which all devices along some mesh axes take part: its first operand is what a device
    contributes, its only result what it receives.
  }];
  let methods = [
    InterfaceMethod<"The mesh.", "::llvm::StringRef", "getMesh">,
    InterfaceMethod<"The mesh axes along which devices take part.", "::mlir::ArrayAttr",
                    "getAxes">,
    InterfaceMethod<"What it does with the contributions of several devices; null if it only moves "
                    "them.", "::tessera::dist::ReduceKindAttr", "getReduction", (ins), "",
                    "return {};">,
    InterfaceMethod<"Whether the result may take the place of the operand in memory.", "bool",
                    "isInPlace", (ins), "", "return false;">,
    InterfaceMethod<"Whether several along the same axes must run in program order.", "bool",
                    "keepsOrder", (ins), "", "return false;">];
}

#endif
