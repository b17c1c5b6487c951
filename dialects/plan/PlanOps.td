#ifndef TESSERA_PLAN_OPS
#define TESSERA_PLAN_OPS

include "dialects/plan/PlanDialect.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

def Plan_Buffer : StaticShapeMemRefOf<[AnyType]>;

// Including dist's .td would generate its enums again, so this names the class.
def Plan_Cut : Attr<CPred<"::llvm::isa<::tessera::dist::ShardingAttr>($_self)">,
                    "sharding of a tensor"> {
  let storageType = "::tessera::dist::ShardingAttr";
  let returnType = "::tessera::dist::ShardingAttr";
  let convertFromStorage = "$_self";
}

def Plan_StateOp : Plan_Op<"state", [HasParent<"::mlir::ModuleOp">]> {
  let summary = "declares a persistent tensor and its offset in the state region";
  let description = [{
    One for each weight, optimizer moment and counter, shared by all programs of
    the module. `name` is the checkpoint name. If it is a shard, `of` has the global shape and
    `cut` the sharding.
  }];
  let arguments = (ins StrAttr:$name, TypeAttrOf<Plan_Buffer>:$type, Plan_RoleAttr:$role,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$offset, UnitAttr:$decay,
                       OptionalAttr<DenseI64ArrayAttr>:$global, OptionalAttr<Plan_Cut>:$sharding);
  let assemblyFormat = [{
    $name `:` $type $role `at` $offset (`decay` $decay^)? (`of` $global^ `cut` $sharding)?
    attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_ProgramOp : Plan_Op<"program", [IsolatedFromAbove, Symbol, SingleBlock, NoTerminator,
                                         NoRegionArguments]> {
  let summary = "defines an entry of the artifact: steps in order over state, arena and io";
  let description = [{
    `arena` and `io` are sizes in bytes, `flops` the useful floating-point
    operations of one run. Made by `plan-buffers`, verified by `verify-plan`,
    serialized by compiler/artifact.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ConfinedAttr<I64Attr, [IntNonNegative]>:$arena,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$io,
                       DefaultValuedAttr<I64Attr, "0">:$flops);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `arena` $arena `io` $io (`flops` $flops^)? attr-dict-with-keyword $body
  }];
}

def Plan_BufferOp : Plan_Op<"buffer", [Pure]> {
  let summary = "names a range of bytes with a type";
  let description = [{
    `name` is the state tensor's checkpoint name, or the name of an io tensor. `lives` is
    the live ranges of an arena buffer, first and last step (in program order) of each. In between
    its contents are not needed: the first step of a later range writes the whole buffer.
    `of` and `cut` are those of plan.state, for inputs and outputs.
  }];
  let arguments = (ins Plan_SpaceAttr:$space, ConfinedAttr<I64Attr, [IntNonNegative]>:$offset,
                       OptionalAttr<StrAttr>:$name, OptionalAttr<Plan_RoleAttr>:$role,
                       OptionalAttr<DenseI64ArrayAttr>:$lives,
                       OptionalAttr<DenseI64ArrayAttr>:$global, OptionalAttr<Plan_Cut>:$sharding);
  let results = (outs Plan_Buffer:$memory);
  let assemblyFormat = [{
    $space `at` $offset ($name^)? (`as` $role^)? (`lives` $lives^)?
    (`of` $global^ `cut` $sharding)? attr-dict `:` type($memory)
  }];
  let hasVerifier = 1;
}

def Plan_ViewOp : Plan_Op<"view", [Pure]> {
  let summary = "slices a buffer; the slice is dense and may advance with an enclosing loop";
  let description = [{
    Starts `offset` bytes into the buffer, plus `stride` bytes × the induction value of a
    loop when one is given.
  }];
  let arguments = (ins Plan_Buffer:$source, ConfinedAttr<I64Attr, [IntNonNegative]>:$offset,
                       Optional<Index>:$induction, OptionalAttr<I64Attr>:$stride);
  let results = (outs Plan_Buffer:$memory);
  let assemblyFormat = [{
    $source `at` $offset (`plus` $induction^ `times` $stride)? attr-dict
    `:` type($source) `to` type($memory)
  }];
  let hasVerifier = 1;
}

def Plan_LaunchOp : Plan_Op<"launch", []> {
  let summary = "runs all blocks of a kernel on buffers";
  let description = [{
    `buffers` are those of the kernel, instance by instance; `blocks` has one count for each
    instance, `sizes` the dynamic sizes instance by instance. Steps are separated by a
    barrier: the next one starts when every block is done.
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel, Variadic<Plan_Buffer>:$buffers,
                       DenseI64ArrayAttr:$blocks, DenseI64ArrayAttr:$sizes);
  let assemblyFormat = [{
    $kernel `(` $buffers `)` `blocks` $blocks `sizes` $sizes attr-dict `:` type($buffers)
  }];
  let hasVerifier = 1;
}

def Plan_LoopOp : Plan_Op<"loop", [SingleBlock, NoTerminator]> {
  let summary = "runs its body `trip` times, in order";
  let description = [{
    With `count` (i32, one element) it runs min(`trip`, max(0, `count`)) times; the count is read
    before the first iteration, which no step of the body may change.

    ```mlir
    plan.loop %i to 4 { ... }
    plan.loop %i to 4 atmost %n : memref<i32> { ... }
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive]>:$trip, Optional<Plan_Buffer>:$count);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "int64_t":$trip, CArg<"::mlir::Value", "{}">:$count)>];
  let extraClassDeclaration = [{
    ::mlir::Value getInduction() { return getBody().front().getArgument(0); }
  }];
}

def Plan_CopyOp : Plan_Op<"copy", [AllTypesMatch<["from", "to"]>]> {
  let summary = "copies bytes from one buffer to another";
  let arguments = (ins Plan_Buffer:$from, Plan_Buffer:$to);
  let assemblyFormat = "$from `to` $to attr-dict `:` type($from)";
}

def Plan_FillOp : Plan_Op<"fill", []> {
  let summary = "sets every byte of a buffer to `value`";
  let arguments = (ins Plan_Buffer:$to, I8Attr:$value);
  let assemblyFormat = "$to `with` $value attr-dict `:` type($to)";
}

def Plan_CollectiveOp : Plan_Op<"collective", []> {
  let summary = "runs a collective among the ranks that differ only along `axes`";
  let description = [{
    Members are numbered by their coordinates along `axes`, the last one fastest. Buffers are
    dense. `counts` has a number of elements for each member: in all_gather those that it
    contributes, in reduce_scatter those that it receives, in all_to_all, where all are equal,
    those that it receives from each member. permute has `targets` instead: the member to which
    each one sends, or -1; members that receive nothing get zeros. all_reduce is in place: `from`
    and `to` are one buffer. In the others they do not overlap.

    exchange_rows takes the counts of dist.exchange_rows as `rows`, which are read when the
    collective starts: `from` is [n, width], `to` [m, width].

    With a ticket it is only started. Until the plan.wait of that ticket, in the same block, `from`
    must not be written, and `to` must be neither read nor written.

    ```mlir
    plan.collective all_reduce %a to %a by sum over ["tensor"] : memref<8x4xf32> to memref<8x4xf32>
    %t = plan.collective all_gather %a to %b over ["data"] counts [32, 16]
      : memref<8x4xf32> to memref<12x4xf32> -> !plan.ticket
    plan.wait %t
    ```
  }];
  let arguments = (ins Plan_CollectiveKindAttr:$kind, OptionalAttr<Plan_ReductionAttr>:$reduction,
                       Plan_Buffer:$from, Plan_Buffer:$to, Optional<Plan_Buffer>:$rows,
                       StrArrayAttr:$axes, OptionalAttr<DenseI64ArrayAttr>:$counts,
                       OptionalAttr<DenseI64ArrayAttr>:$targets);
  let results = (outs Optional<Plan_TicketType>:$ticket);
  let assemblyFormat = [{
    $kind $from `to` $to (`rows` $rows^ `:` type($rows))? (`by` $reduction^)? `over` $axes
    (`counts` $counts^)? (`targets` $targets^)? attr-dict
    `:` type($from) `to` type($to) (`->` type($ticket)^)?
  }];
  let hasVerifier = 1;
}

def Plan_WaitOp : Plan_Op<"wait", []> {
  let summary = "waits for a started collective";
  let arguments = (ins Plan_TicketType:$ticket);
  let assemblyFormat = "$ticket attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    CollectiveOp getCollective() { return getTicket().getDefiningOp<CollectiveOp>(); }
  }];
}

#endif
