// What nearly every subcommand includes.
#pragma once
#include "cmake/ArtifactPch.h"
#include "cmake/CompilerPch.h"

// Options are parsed once a run, and CLI11 is all in its headers: to optimize
// it takes a quarter of a subcommand's compile time.
#ifdef __clang__
#pragma clang optimize off
#endif
#include <CLI/CLI.hpp>
#ifdef __clang__
#pragma clang optimize on
#endif
