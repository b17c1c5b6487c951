// What nearly every source includes that turns graph ops into kernels.
#pragma once
#include "cmake/GraphPch.h"
#include "dialects/tile/TileOps.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
