// What nearly every source includes that reads or changes the graph dialect.
#pragma once
#include "cmake/CompilerPch.h"
#include "dialects/graph/GraphOps.h"
