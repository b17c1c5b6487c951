// The plan dialect: when, and in which bytes. See README.md in this folder.
#ifndef TESSERA_PLAN_DIALECT
#define TESSERA_PLAN_DIALECT

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/AttrTypeBase.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::tessera::plan";
  let summary = "When, and in which bytes: a static program over one arena";
  let description = [{
    What the runtime executes is this and nothing else. Values are memrefs with a
    place; steps run in the order of the text. Peak memory is a number in the IR.
  }];
  // State and inputs say how they are cut.
  let dependentDialects = ["::tessera::dist::DistDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

class Plan_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let genSpecializedAttr = 0;
  let cppNamespace = "::tessera::plan";
}

// Cases stand in the order of the artifact's schema (runtime/artifact/Artifact.fbs).
def Plan_Space : Plan_Enum<"Space", "where a buffer lives", [
  I32EnumAttrCase<"state", 0>,   // persists across runs of any program
  I32EnumAttrCase<"arena", 1>,   // scratch of one run
  I32EnumAttrCase<"io", 2>]>;    // written and read by the host between runs
def Plan_SpaceAttr : EnumAttr<Plan_Dialect, Plan_Space, "space">;

def Plan_Role : Plan_Enum<"Role", "what a tensor is to the host", [
  I32EnumAttrCase<"parameter", 0>, I32EnumAttrCase<"optimizer", 1>, I32EnumAttrCase<"counter", 2>,
  I32EnumAttrCase<"input", 3>, I32EnumAttrCase<"output", 4>, I32EnumAttrCase<"metric", 5>,
  I32EnumAttrCase<"cache", 6>]>;
def Plan_RoleAttr : EnumAttr<Plan_Dialect, Plan_Role, "role">;

def Plan_CollectiveKind : Plan_Enum<"CollectiveKind", "what ranks do together", [
  I32EnumAttrCase<"all_reduce", 0>, I32EnumAttrCase<"all_gather", 1>, I32EnumAttrCase<"reduce_scatter", 2>,
  I32EnumAttrCase<"all_to_all", 3>, I32EnumAttrCase<"permute", 4>,
  I32EnumAttrCase<"exchange_rows", 5>]>;
def Plan_CollectiveKindAttr : EnumAttr<Plan_Dialect, Plan_CollectiveKind, "collective">;

def Plan_Reduction : Plan_Enum<"Reduction", "how parts of several ranks become one", [
  I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"max", 1>]>;
def Plan_ReductionAttr : EnumAttr<Plan_Dialect, Plan_Reduction, "reduction">;

def Plan_TicketType : TypeDef<Plan_Dialect, "Ticket"> {
  let mnemonic = "ticket";
  let summary = "a collective that was started and that one plan.wait ends";
}

#endif
