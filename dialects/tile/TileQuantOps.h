// Products with weights that are integers with scales: tile.mma_quantized.
#pragma once
#include "dialects/tile/TileOps.h"

#define GET_OP_CLASSES
#include "dialects/tile/TileQuantOps.h.inc"
