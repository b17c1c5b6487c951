// Recurrences along a dimension: graph.discounted_sum.
#pragma once
#include "dialects/graph/GraphOps.h"

#define GET_OP_CLASSES
#include "dialects/graph/GraphScanOps.h.inc"
