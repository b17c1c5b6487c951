#include "compiler/report/EvalReport.h"

#include <map>

namespace tessera::report {

Json evalReport(std::string_view results, std::span<const std::string> samples,
                std::size_t mostBytes) {
  Json data = Json::parse(results);
  data["kind"] = "eval";
  data["title"] = data["model"];
  std::map<std::string, std::size_t> bytes; // by task
  for (const Json &result : data["results"])
    bytes[result["task"].get<std::string>()] = 0;
  Json &shown = data["samples"] = Json::array();
  std::size_t leftOut = 0;
  for (const std::string &line : samples) {
    Json sample = Json::parse(line);
    std::size_t &used = bytes[sample["task"].get<std::string>()];
    used += line.size();
    if (used <= mostBytes / bytes.size())
      shown.push_back(std::move(sample));
    else
      ++leftOut;
  }
  data["samples_left_out"] = leftOut;
  return data;
}

} // namespace tessera::report
