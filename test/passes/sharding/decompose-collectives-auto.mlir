// What goes in parts is decided by an estimate: of wide layers what is gathered does, of the same layers with few tokens nothing.
// RUN: tessera-opt %S/Inputs/sequence.mlir --assign-shardings="mesh=tensor=4" --decompose-collectives --verify-shardings | FileCheck %s
// RUN: sed -e 's/<4x4096x/<4x64x/g' %S/Inputs/sequence.mlir | tessera-opt --assign-shardings="mesh=tensor=4 parts=true" --decompose-collectives --verify-shardings | FileCheck %s --check-prefix=SMALL
// RUN: sed -e 's/<4x4096x/<4x64x/g' %S/Inputs/sequence.mlir | tessera-opt --assign-shardings="mesh=tensor=4 parts=true" --decompose-collectives="async=on" --decompose-collectives --verify-shardings | FileCheck %s --check-prefix=SMALL
// RUN: tessera-opt %S/Inputs/sequence.mlir --assign-shardings="mesh=tensor=4" --decompose-collectives="async=off" | FileCheck %s --check-prefix=OFF

// CHECK-LABEL: func.func private @layer
// CHECK: dist.reshard {{.*}} to <@mesh, [{}, {}, {}]> {dist.in_parts}
// OFF-NOT: dist.in_parts
// SMALL-LABEL: func.func private @layer
// SMALL: dist.reshard
// SMALL-NOT: dist.in_parts
