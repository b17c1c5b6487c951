// What nearly every unit test of the compiler includes.
#pragma once
#include "cmake/GraphPch.h"
#include "cmake/RuntimeTestPch.h"
