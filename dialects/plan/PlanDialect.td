// The plan dialect: the execution plan. See README.md in this folder.
#ifndef TESSERA_PLAN_DIALECT
#define TESSERA_PLAN_DIALECT

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/AttrTypeBase.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::tessera::plan";
  let summary = "execution plan: a static program over one arena";
  let description = [{
    The runtime executes nothing else. Values are memrefs with an offset; steps run in program
    order. Peak memory is a number in the IR.
  }];
  // State and inputs have shardings.
  let dependentDialects = ["::tessera::dist::DistDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class Plan_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let genSpecializedAttr = 0;
  let cppNamespace = "::tessera::plan";
}

// Cases are in the order of the artifact's schema (runtime/artifact/Artifact.fbs).
def Plan_Space : Plan_Enum<"Space", "memory region of a buffer", [
  I32EnumAttrCase<"state", 0>,   // persists across runs of any program
  I32EnumAttrCase<"arena", 1>,   // scratch of one run
  I32EnumAttrCase<"io", 2>]>;    // written and read by the host between runs
def Plan_SpaceAttr : EnumAttr<Plan_Dialect, Plan_Space, "space">;

def Plan_Role : Plan_Enum<"Role", "what a tensor is to the host", [
  I32EnumAttrCase<"parameter", 0>, I32EnumAttrCase<"optimizer", 1>, I32EnumAttrCase<"counter", 2>,
  I32EnumAttrCase<"input", 3>, I32EnumAttrCase<"output", 4>, I32EnumAttrCase<"metric", 5>,
  I32EnumAttrCase<"cache", 6>, I32EnumAttrCase<"recurrent", 7>]>;
def Plan_RoleAttr : EnumAttr<Plan_Dialect, Plan_Role, "role">;

def Plan_CollectiveKind : Plan_Enum<"CollectiveKind", "kind of collective", [
  I32EnumAttrCase<"all_reduce", 0>, I32EnumAttrCase<"all_gather", 1>,
  I32EnumAttrCase<"reduce_scatter", 2>,
  I32EnumAttrCase<"all_to_all", 3>, I32EnumAttrCase<"permute", 4>,
  I32EnumAttrCase<"exchange_rows", 5>]>;
def Plan_CollectiveKindAttr : EnumAttr<Plan_Dialect, Plan_CollectiveKind, "collective">;

def Plan_Reduction : Plan_Enum<"Reduction", "how a collective combines values of ranks", [
  I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>]>;
def Plan_ReductionAttr : EnumAttr<Plan_Dialect, Plan_Reduction, "reduction">;

def Plan_TicketType : TypeDef<Plan_Dialect, "Ticket"> {
  let mnemonic = "ticket";
  let summary = "a started collective, which one plan.wait ends";
}

#endif
