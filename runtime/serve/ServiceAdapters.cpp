// Loading and unloading adapters while serving.
#include "runtime/serve/Service.h"
#include "runtime/support/Text.h"

#include <csignal>

#include <fmt/format.h>

namespace tessera::serve {
namespace {

struct AdapterRequest {
  std::string name, path;
};

ApiError invalid(std::string message, std::string param) {
  return {400, std::move(message), std::move(param), "invalid_value"};
}

/// The fields `lora_name` and, to load, `lora_path`, as in vLLM.
std::variant<AdapterRequest, ApiError> readRequest(std::string_view body,
                                                   bool loads) {
  auto parsed = JsonValue::parse(body, "the body");
  if (!parsed.ok())
    return invalid(parsed.message(), "");
  if (!parsed->isObject())
    return invalid("the body must be a JSON object", "");
  AdapterRequest request;
  for (const auto &[key, value] : parsed->members()) {
    std::string *to = key == "lora_name"            ? &request.name
                      : key == "lora_path" && loads ? &request.path
                                                    : nullptr;
    std::string_view text;
    if (!to)
      return invalid(fmt::format("unknown field {}", quote(key)), key);
    if (!value.get(text) || text.empty())
      return invalid(key + " must be a string that is not empty", key);
    *to = text;
  }
  if (request.name.empty())
    return invalid("lora_name is missing", "lora_name");
  if (loads && request.path.empty())
    return invalid("lora_path is missing", "lora_path");
  return request;
}

/// A thread for which no signal is meant.
std::jthread quietThread(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::jthread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

} // namespace

void Service::changeAdapters(const RouteMatch &match, const HttpRequest &http,
                             const Reply &reply) {
  const bool loads = match.route->id == RouteId::loadAdapter;
  if (!options.changesAdapters)
    return sendError(reply, {403,
                             "adapters are loaded and unloaded only by a "
                             "server that was started with --adapter-slots",
                             "", "not_supported"});
  auto read = readRequest(http.body, loads);
  if (const auto *error = std::get_if<ApiError>(&read))
    return sendError(reply, *error);
  auto &[name, path] = std::get<AdapterRequest>(read);
  if (loads)
    return loadAdapter(name, path, reply);
  if (!options.adapters->remove(name))
    return sendError(reply,
                     {404, fmt::format("unknown adapter {}", quote(name)),
                      "lora_name", "model_not_found"});
  sendText(reply, "text/plain; charset=utf-8",
           fmt::format("Success: LoRA adapter {} removed successfully.",
                       quote(name)));
}

// Files are read on a thread of their own, and the slot is filled between two
// steps of the engine: other requests go on meanwhile.
void Service::loadAdapter(const std::string &name, const std::string &path,
                          const Reply &reply) {
  if (isLoading)
    return sendError(
        reply, {429, "another adapter is being loaded", "", "queue_full"});
  auto entry = options.adapters->reserve(name, path, options.models);
  if (!entry.ok())
    return sendError(reply, invalid(entry.message(), "lora_name"));
  isLoading = true;
  auto finish = [this, reply](Status status, Adapters::Entry loaded) {
    server->post([this, reply, status, loaded = std::move(loaded)]() mutable {
      isLoading = false;
      if (!status.ok())
        return sendError(reply, invalid(status.message(), "lora_path"));
      const std::string text = fmt::format(
          "Success: LoRA adapter {} added successfully.", quote(loaded.name));
      options.adapters->add(std::move(loaded));
      sendText(reply, "text/plain; charset=utf-8", text);
    });
  };
  loader = quietThread([this, finish, entry = entry.take()]() mutable {
    // Moved: after the reply to an error nothing but the next request may hold
    // the slot.
    auto prepared = options.adapters->read(std::move(entry));
    if (!prepared.ok())
      return finish(prepared.status(), {});
    auto write = [this, finish, prepared = prepared.take()] {
      finish(options.adapters->write(prepared), prepared.entry);
    };
    if (!engine.run(std::move(write)))
      finish(Status::error("the server is shutting down"), {});
  });
}

} // namespace tessera::serve
