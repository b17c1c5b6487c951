// Where rows of experts may change devices: graph.send_rows, graph.return_rows.
#pragma once
#include "dialects/graph/GraphOps.h"

#define GET_OP_CLASSES
#include "dialects/graph/GraphExchangeOps.h.inc"
