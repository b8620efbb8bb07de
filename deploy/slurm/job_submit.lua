-- SPDX-License-Identifier: Apache-2.0
--[[
JobSubmitPlugins=lua: turns `sbatch --stage=NAME@VERSION` (spank_leat.so) into the line that
burst_buffer.lua reads. So staging precedes the start of the job, and squeue has the reason if it
fails. Without this script or the burst buffer, the tasks wait for the data.
If the site has a job_submit.lua, call leat_stage(job_desc) from it.
]]--

-- Directive= of burst_buffer.conf
local directive = "BB_LUA"

local function asked(job_desc)
	local env = job_desc.spank_job_env
	for i = 0, (job_desc.spank_job_env_size or 0) - 1 do
		local names = env and env[i] and tostring(env[i]):match("^LEAT_STAGE=([%w@._,-]+)$")
		if names then
			return names
		end
	end
	return nil
end

function leat_stage(job_desc)
	local names = asked(job_desc)
	if names == nil then
		return
	end
	local line = "#" .. directive .. " leat=" .. names
	local script = job_desc.script
	if script == nil then
		job_desc.burst_buffer = line
	elseif not script:find("\n#" .. directive .. "[^\n]*%sleat=") then
		job_desc.script = script:gsub("\n", "\n" .. line .. "\n", 1)
	end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	leat_stage(job_desc)
	return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
