// What nearly every unit test of the runtime includes.
#pragma once
#include "cmake/RuntimePch.h"

#include <gtest/gtest.h>
