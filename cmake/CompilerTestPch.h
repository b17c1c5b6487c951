// What nearly every unit test of the compiler includes.
#pragma once
#include "cmake/CompilerPch.h"
#include "cmake/RuntimeTestPch.h"
