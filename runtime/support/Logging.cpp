#include "runtime/support/Logging.h"

#include <cstdlib>
#include <string>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace tessera {

Status initLogging(std::string_view level) {
  const char *environment = std::getenv("TESSERA_LOG");
  const bool fromEnvironment = environment && *environment;
  const std::string name(fromEnvironment ? std::string_view(environment)
                                         : level);
  // from_str answers `off` to a name it does not know.
  const auto parsed = spdlog::level::from_str(name);
  if (parsed == spdlog::level::off && name != "off")
    return Status::error("{}: unknown log level '{}': use trace, debug, info, "
                         "warn, error or off",
                         fromEnvironment ? "TESSERA_LOG" : "log level", name);
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>("tessera", sink);
  logger->set_pattern("%H:%M:%S %^%l%$ %v");
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
  return Status::success();
}

} // namespace tessera
