// Matmuls with quantized weights (integers or e4m3 with scales):
// tile.mma_quantized.
#pragma once
#include "dialects/tile/TileOps.h"

#define GET_OP_CLASSES
#include "dialects/tile/TileQuantOps.h.inc"
