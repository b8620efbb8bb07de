-- SPDX-License-Identifier: Apache-2.0
--[[
Staging of data sets as a burst buffer of Slurm (BurstBufferType=burst_buffer/lua). In a job script:

    #BB_LUA leat=imagenet@v1,labels@v3 limit=200G

    submission   checks the line; the user gets an error immediately
  pending      data_in: checks that the data sets exist and fit. If not, the job stays pending, and
               its reason (squeue) is the message of leat-slurm
  allocated    pre_run: stages on all of the job's nodes before the script starts. If that fails,
               the job is pending again with the reason "Burst buffer pre_run error", and its
               comment (squeue -O AdminComment) is the message; Slurm tries again later
  afterwards   teardown: releases the job's leases; the copies stay until space is needed

None of these steps drains a node. Runs in a separate process of slurmctld, as SlurmUser; leat-slurm
(leat-slurm.conf) does the work. The number of arguments differs between the versions of Slurm, so
only the first arguments are named.
]]--

lua_script_name = "burst_buffer.lua"
-- A site may change these: the path of the helper, and Directive= of burst_buffer.conf.
local helper = "/usr/share/leat/slurm/leat-slurm"
local directive = "BB_LUA"

local function quoted(text)
	return "'" .. tostring(text):gsub("'", "'\\''") .. "'"
end

-- Returns a user's text for a message: at most 80 characters, in printable ASCII.
local function shown(text)
	return "'" .. text:sub(1, 80):gsub("[^\32-\126]", "?") .. "'"
end

-- Runs the helper. Returns slurm.SUCCESS, or slurm.ERROR and the helper's message.
local function run(...)
	local command = quoted(helper)
	for _, word in ipairs({...}) do
		command = command .. " " .. quoted(word)
	end
	local pipe = io.popen(command .. " 2>&1; echo \"rc=$?\"")
	if pipe == nil then
		return slurm.ERROR, "leat: cannot run " .. helper
	end
	local text = pipe:read("*a")
	pipe:close()
	local rc = tonumber(text:match("rc=(%d+)%s*$") or "1")
	if rc == 0 then
		return slurm.SUCCESS
	end
	local said = text:match("(leat:[^\n]*)") or ("leat: " .. helper .. " ended with " .. rc)
	slurm.log_error("%s: %s", lua_script_name, said)
	return slurm.ERROR, said
end

-- Returns the words of all directives of a script: {leat = ..., limit = ...}; nil without leat=;
-- nil and a message if a directive is invalid.
local function wanted(path)
	local file = io.open(path, "r")
	if file == nil then
		return nil, "leat: cannot read the job's script"
	end
	local words = {}
	for line in file:lines() do
		local rest = line:match("^#" .. directive .. "%s+(.*)")
		for word in (rest or ""):gmatch("%S+") do
			local name, value = word:match("^(%w+)=([%w@._,-]+)$")
			if word:match("^leat=") or words.leat and name == "limit" then
				if name == nil then
					file:close()
					return nil, "leat: " .. shown(word) ..
						" is not understood: leat=NAME@VERSION limit=200G"
				end
			end
			if name == "leat" and words.leat ~= nil then
				words.leat = words.leat .. "," .. value
			elseif name == "leat" or name == "limit" then
				words[name] = value
			end
		end
	end
	file:close()
	if words.leat == nil then
		return nil
	end
	for one in (words.leat .. ","):gmatch("([^,]*),") do
		if not one:match("^%w[%w._-]*@%w[%w._-]*$") then
			return nil, "leat: " .. shown(one) .. " is no NAME@VERSION"
		end
	end
	return words
end

-- Returns the nodes that are allocated to the job. Not by `scontrol show job`, which prints the
-- job's name, arbitrary text, before them. For the number of an array squeue prints all its tasks.
local function nodes_of(job_id)
	local ask = "squeue -h -t all -j %d -o '%%A %%N' 2>/dev/null"
	local pipe = io.popen(ask:format(tonumber(job_id)))
	local text = pipe and pipe:read("*a") or ""
	if pipe then
		pipe:close()
	end
	for line in text:gmatch("[^\n]+") do
		local id, nodes = line:match("^%s*(%d+)%s+(%S+)")
		if tonumber(id) == tonumber(job_id) then
			return nodes
		end
	end
	return nil
end

function slurm_bb_job_process(job_script, ...)
	local _, wrong = wanted(job_script)
	if wrong then
		return slurm.ERROR, wrong
	end
	return slurm.SUCCESS
end

function slurm_bb_pools(...)
	return slurm.SUCCESS
end

function slurm_bb_setup(...)
	return slurm.SUCCESS
end

function slurm_bb_data_in(job_id, job_script, ...)
	local words, wrong = wanted(job_script)
	if words == nil then
		return wrong and slurm.ERROR or slurm.SUCCESS, wrong
	end
	return run("check", words.leat, words.limit or "")
end

function slurm_bb_test_data_in(...)
	return slurm.SUCCESS, "BACK_TO_QUEUED"
end

function slurm_bb_real_size(...)
	return slurm.SUCCESS
end

function slurm_bb_paths(job_id, job_script, path_file, ...)
	local words = wanted(job_script)
	local file = words and path_file and io.open(path_file, "w")
	if file then
		file:write("LEAT_STAGE=" .. words.leat .. "\n")
		file:close()
	end
	return slurm.SUCCESS
end

function slurm_bb_pre_run(job_id, job_script, ...)
	local words, wrong = wanted(job_script)
	if words == nil then
		return wrong and slurm.ERROR or slurm.SUCCESS, wrong
	end
	local nodes = nodes_of(job_id)
	if nodes == nil then
		return slurm.ERROR, "leat: Slurm does not tell the nodes of job " .. job_id
	end
	return run("stage", job_id, nodes, words.leat)
end

function slurm_bb_post_run(...)
	return slurm.SUCCESS
end

function slurm_bb_data_out(...)
	return slurm.SUCCESS
end

function slurm_bb_test_data_out(...)
	return slurm.SUCCESS
end

function slurm_bb_job_teardown(job_id, job_script, hurry, ...)
	local nodes = nodes_of(job_id)
	if nodes ~= nil then
		run("release", job_id, nodes)
	end
	return slurm.SUCCESS
end

function slurm_bb_get_status(...)
	return slurm.SUCCESS, "leat stage status --to DIR tells, on each node"
end

return slurm.SUCCESS
