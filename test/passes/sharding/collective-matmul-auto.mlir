// What goes in parts is decided by an estimate: of wide layers what is gathered does, of the same layers with few tokens nothing.
// RUN: tessera-opt %S/Inputs/sequence.mlir --assign-shardings="mesh=tensor=4" --collective-matmul --verify-shardings | FileCheck %s
// RUN: sed -e 's/<4x4096x/<4x64x/g' %S/Inputs/sequence.mlir | tessera-opt --assign-shardings="mesh=tensor=4 parts=true" --collective-matmul --verify-shardings | FileCheck %s --check-prefix=SMALL
// RUN: sed -e 's/<4x4096x/<4x64x/g' %S/Inputs/sequence.mlir | tessera-opt --assign-shardings="mesh=tensor=4 parts=true" --collective-matmul="mode=on" --collective-matmul --verify-shardings | FileCheck %s --check-prefix=SMALL
// RUN: tessera-opt %S/Inputs/sequence.mlir --assign-shardings="mesh=tensor=4" --collective-matmul="mode=off" | FileCheck %s --check-prefix=OFF

// CHECK-LABEL: func.func private @layer
// CHECK: dist.reshard {{.*}} to <@mesh, [{}, {}, {}]> {dist.collective_matmul}
// OFF-NOT: dist.collective_matmul
// SMALL-LABEL: func.func private @layer
// SMALL: dist.reshard
// SMALL-NOT: dist.collective_matmul
