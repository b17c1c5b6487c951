// A report as one page: the files of page/ with the data as one block of JSON.
#pragma once
#include <string>
#include <string_view>

#include "compiler/report/Json.h"

namespace tessera::report {

/// The page, complete in itself: nothing is loaded from anywhere. Strings in
/// `data` may hold anything.
std::string page(std::string_view title, const Json &data);

/// `data` as text for a <script> element.
std::string scriptText(const Json &data);

} // namespace tessera::report
