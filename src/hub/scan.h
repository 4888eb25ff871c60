// Looks through the folders of one kind of cache for models that are there in full. Layouts are
// those of huggingface_hub (models--OWNER--REPO/snapshots/COMMIT), LM Studio (OWNER/REPO/FILE) and
// Ollama (manifests/HOST/OWNER/NAME/TAG naming blobs/sha256-HEX). What cannot be read is passed
// over.
#pragma once

#include "hub/local_models.h"

namespace kapitsa::hub {

void scan_kapitsa(const std::filesystem::path& folder, std::vector<LocalModel>& models);
void scan_hugging_face(const std::filesystem::path& folder, std::vector<LocalModel>& models);
void scan_lm_studio(const std::filesystem::path& folder, std::vector<LocalModel>& models);
void scan_ollama(const std::filesystem::path& folder, std::vector<LocalModel>& models);

// The folder of a download from the hub: OWNER--REPO, and --WANTED when it is a file of several.
std::string hf_folder_name(std::string_view repository, std::string_view wanted);

// Of the files in it and below, links not followed.
int64_t folder_bytes(const std::filesystem::path& folder);

}  // namespace kapitsa::hub
