// The choice of a token from its logits: graph.sample.
#pragma once
#include "dialects/graph/GraphOps.h"

#define GET_OP_CLASSES
#include "dialects/graph/GraphSamplingOps.h.inc"
